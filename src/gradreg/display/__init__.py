"""How results are shown: numbers in words, summaries, tables of records, charts."""
