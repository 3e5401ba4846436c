"""Makes the tables and figures of these documents from results/: `python -m docs.make`, in the checkout."""
