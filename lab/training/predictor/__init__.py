"""Train the acceptance predictor of draft tokens, and compare the kinds of models that could serve as one."""
