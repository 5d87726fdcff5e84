"""deploykit: which hardware should this model ship on, and what is the proof?"""

__version__ = "0.1.0"
