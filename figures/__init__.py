"""One module a figure: load tidy rows, make one frame, draw it. No numbers are typed in here."""
