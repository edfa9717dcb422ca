"""Process reward models as data: formats, conversion, and the sparsity of a checkpoint."""
