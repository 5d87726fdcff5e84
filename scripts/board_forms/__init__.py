"""Machines re-created from documented formats, in the form in which `deploykit targets detect --save` records them."""
