"""Private measurements of a hidden state: policy graphs, constraints, sensitivity hulls, and certified tables.

Numbers only, for the DPHMM mechanism (Xiao, Shen, Liu, Xiong, Jin, Xu); geometry is exact where a boundary decides.
What is compiled here is a table of integers, which a device checks before it draws from it.
"""
