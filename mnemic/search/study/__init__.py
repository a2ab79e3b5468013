"""Studies of spaces: trials in processes of their own, kept in a storage, resumed on demand."""
