"""Calibration and accounting: randomised response, the chain accountant, and the papers' mechanisms beside them.

Numbers only: what is calibrated here is certified by `fugu.contract.guarantee`, which devices run too.
"""
