"""A derivation for people: equations, costs, stability, as text, LaTeX and Markdown."""
