"""What is sent, by everybody who sends, against T."""
