"""A page for browsers: a static folder in which Pyodide runs the light half of the package."""
