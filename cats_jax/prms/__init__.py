"""Process reward models as data: formats, and the sparsity of a checkpoint."""
