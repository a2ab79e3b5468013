"""Language models around any memory layer, and their training; knows nothing of specs."""
