"""The package that generated code imports: it needs torch alone, and ``compile`` copies it beside
that code."""
