"""What a fit is made of: steps that ask the curator, each at a price fixed beforehand."""
