"""What generated code stands on: importable with torch alone, copied beside it by ``compile``."""
