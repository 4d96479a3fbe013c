"""Reports: one page of a result, in one HTML file that fetches nothing from elsewhere (`simdnn.report`)."""
