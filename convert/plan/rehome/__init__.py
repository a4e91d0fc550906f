"""Classes that compute the same function as another one's, as rows: names, folds, new config."""
