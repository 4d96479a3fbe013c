"""`python -m simdnn.cli`, where the `simdnn` script is not on the path."""

import sys

from simdnn.cli import main

if __name__ == "__main__":
    sys.exit(main())
