"""Private measurements of a hidden state (DPHMM, Xiao, Shen, Liu, Xiong, Jin, Xu); exact where a boundary decides.

What is compiled here is a table of integers, which a device checks before it draws from it.
"""
