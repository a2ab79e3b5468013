"""What generated code imports: needs torch alone; ``compile`` copies it beside the code."""
