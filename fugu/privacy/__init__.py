"""Calibration and accounting: numbers only, certified by `fugu.contract.guarantee`, which devices run too."""
