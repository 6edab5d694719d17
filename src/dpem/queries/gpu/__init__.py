"""One GPU kernel for each query: trace the query's formula for one row, write a Triton kernel, sum over the rows."""
