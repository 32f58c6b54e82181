// Connects JDBC to the Unix socket of the test server, which has no TCP port.  The driver creates this
// factory with the path of the socket, its parameter socketFactoryArg.

import java.io.IOException;
import java.io.InputStream;
import java.io.OutputStream;
import java.net.InetAddress;
import java.net.Socket;
import java.net.SocketAddress;
import java.net.UnixDomainSocketAddress;
import java.nio.channels.Channels;
import java.nio.channels.SocketChannel;
import javax.net.SocketFactory;

public class UnixSocketFactory extends SocketFactory {
	private final UnixDomainSocketAddress address;

	public UnixSocketFactory(String path) {
		address = UnixDomainSocketAddress.of(path);
	}

	@Override
	public Socket createSocket() {
		return new UnixSocket();
	}

	@Override
	public Socket createSocket(String host, int port) {
		throw new UnsupportedOperationException();
	}

	@Override
	public Socket createSocket(String host, int port, InetAddress localHost, int localPort) {
		throw new UnsupportedOperationException();
	}

	@Override
	public Socket createSocket(InetAddress host, int port) {
		throw new UnsupportedOperationException();
	}

	@Override
	public Socket createSocket(InetAddress host, int port, InetAddress localHost, int localPort) {
		throw new UnsupportedOperationException();
	}

	/** The methods of a socket that the driver calls.  Options of TCP do nothing here. */
	private class UnixSocket extends Socket {
		private SocketChannel channel;

		@Override
		public void connect(SocketAddress ignored, int timeout) throws IOException {
			channel = SocketChannel.open(address);
		}

		@Override
		public boolean isConnected() {
			return channel != null && channel.isConnected();
		}

		@Override
		public InputStream getInputStream() {
			return Channels.newInputStream(channel);
		}

		@Override
		public OutputStream getOutputStream() {
			return Channels.newOutputStream(channel);
		}

		@Override
		public void setTcpNoDelay(boolean on) {
		}

		@Override
		public void setKeepAlive(boolean on) {
		}

		@Override
		public void setSoTimeout(int timeout) {
		}

		@Override
		public int getSoTimeout() {
			return 0;
		}

		@Override
		public synchronized void close() throws IOException {
			if (channel != null) {
				channel.close();
			}
			super.close();
		}
	}
}
