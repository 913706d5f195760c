"""What these commands share: the API's client, arguments, output, problems."""
