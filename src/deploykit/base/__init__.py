"""Words, errors, files and protocols that every room shares. Imports nothing else of deploykit."""
