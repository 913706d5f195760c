"""What travels through Edgewake, and nothing that moves it.

Values, names, bounds and codecs that the device and the cloud must agree on. No module here opens a
socket, a file (except `config`, which reads one) or a thread, and none imports `edge`, `cloud`,
`simulators` or `deploy`.
"""
