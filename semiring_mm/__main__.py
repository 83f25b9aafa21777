"""`python -m semiring_mm` is `semiring-mm`."""

import sys

from .cli import main

sys.exit(main())
