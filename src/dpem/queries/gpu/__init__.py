"""One GPU kernel for each query, made from the query's own formula: trace it, write a Triton kernel, add rows."""
