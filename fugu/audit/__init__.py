"""Checks of what is promised that trust nobody, on what they are given; `exact` is the second certificate."""
