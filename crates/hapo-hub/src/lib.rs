//! Models and data sets by the names they have on the Hugging Face hub.
