"""Early stopping of drafts on a device: acceptance predictors, stop rules, recalibration and logs of rounds."""
