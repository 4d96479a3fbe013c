"""Parts that kernels of all targets share: problems, parameters, layouts, formulas, batches."""
