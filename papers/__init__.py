"""Every published figure and table of the four papers, and ours beside them: a module for each paper.

`targets.TARGETS` names them. A target gives rows (the paper's number, ours, and why they differ) and pictures as data.

BDP: Chakrabarti, Gao, Saraf, Schoenebeck, Yu, Optimal Local Bayesian Differential Privacy over Markov Chains (2020).
MQM: Song, Wang, Chaudhuri, Pufferfish Privacy Mechanisms for Correlated Data (SIGMOD 2017).
COMP: Song, Chaudhuri, Composition Properties of Inferential Privacy for Time-Series Data (2017).
DPHMM: Xiao, Shen, Liu, Xiong, Jin, Xu, Customizable Data Release with Differential Privacy via Hidden Markov Model.
"""
