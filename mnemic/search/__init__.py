"""The search over specs: spaces of specs, tasks that score models, studies, and reports."""
