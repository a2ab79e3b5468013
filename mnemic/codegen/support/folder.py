"""The compiled folder that this file is in: where it lies, and the name it was imported by."""

from pathlib import Path

FOLDER = Path(__file__).resolve().parents[1]

PACKAGE = __name__.removesuffix(".support.folder")
