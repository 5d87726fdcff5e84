"""What a target costs: dated, sourced quotes, and the arithmetic from them to USD a month."""
