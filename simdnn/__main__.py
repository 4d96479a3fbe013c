"""`python -m simdnn`: the command, where it is not on the path."""

import sys

from simdnn.cli import main

sys.exit(main())
