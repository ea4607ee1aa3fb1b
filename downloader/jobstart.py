"""Starts a job process: `python -P -m downloader.jobstart`. Its imports are its greatest burst, so they rest, too."""

from __future__ import annotations

import os
import sys

from downloader.manners import PoliteImports, own

if __name__ == "__main__":
    sys.meta_path.insert(0, PoliteImports(own))
    from downloader.job import main

    # The watching thread sits in a read and holds the lock of standard input, over which an orderly end would fall.
    os._exit(main())
