"""`python -m gradreg`, for torchrun and for machines where scripts are not on the path."""

from gradreg.cli import main

main()
