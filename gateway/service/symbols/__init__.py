"""Frames of symbols by the batch: columns of arrays in place of objects, and compiled kernels over all of them."""
