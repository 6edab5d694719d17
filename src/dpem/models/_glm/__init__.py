"""What generalised linear models share: queries, steps, planning, results. A model adds its family and its words."""
