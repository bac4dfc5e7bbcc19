"""A part of the loop, and the parts that say what streams are: descriptions, Home Assistant, tables for devices."""
