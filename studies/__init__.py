"""Studies behind the defaults and limits of fedlsvi; README.md lists them. Run from a clone."""
