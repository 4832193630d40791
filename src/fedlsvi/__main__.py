"""`python -m fedlsvi`: the command line."""

import sys

from fedlsvi.cli import main

sys.exit(main())
