"""`python -m lossproof`."""

import sys

from lossproof.cli import main

sys.exit(main())
