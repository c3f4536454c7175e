"""SSH: the one room that knows Fabric and Paramiko."""

from ascendboot.transport.ssh.opener import SshOpener

__all__ = ["SshOpener"]
