import io.grpc.CallOptions;
import io.grpc.Channel;
import io.grpc.Grpc;
import io.grpc.InsecureChannelCredentials;
import io.grpc.ManagedChannel;
import io.grpc.ManagedChannelBuilder;
import io.grpc.Metadata;
import io.grpc.MethodDescriptor;
import io.grpc.StatusRuntimeException;
import io.grpc.stub.ClientCalls;
import io.grpc.stub.MetadataUtils;
import io.grpc.ClientInterceptors;
import java.io.ByteArrayInputStream;
import java.io.IOException;
import java.io.InputStream;
import java.io.UncheckedIOException;
import java.util.List;
import java.util.Locale;
import java.util.concurrent.ExecutionException;
import java.util.concurrent.Future;
import java.util.concurrent.TimeUnit;
import java.util.concurrent.locks.LockSupport;
import java.util.function.IntFunction;
import java.util.stream.IntStream;

/**
 * The client of grpc_peer.py for grpc-java: it calls on some channels all the time, and prints each result, or makes many calls at once.
 *
 * <p>usage: java GrpcPeer loop CHANNEL..., java GrpcPeer many TARGET COUNT, java GrpcPeer each TARGET COUNT
 */
final class GrpcPeer {
  private static final MethodDescriptor.Marshaller<byte[]> AS_IS =
      new MethodDescriptor.Marshaller<>() {
        @Override
        public InputStream stream(byte[] message) {
          return new ByteArrayInputStream(message);
        }

        @Override
        public byte[] parse(InputStream stream) {
          try {
            return stream.readAllBytes();
          } catch (IOException error) {
            throw new UncheckedIOException(error);
          }
        }
      };

  private static MethodDescriptor<byte[], byte[]> method(String name) {
    return MethodDescriptor.newBuilder(AS_IS, AS_IS)
        .setType(MethodDescriptor.MethodType.UNARY)
        .setFullMethodName("kit.Which/" + name)
        .build();
  }

  private static ManagedChannel open(String target) {
    return Grpc.newChannelBuilder(target, InsecureChannelCredentials.create()).build();
  }

  private static Future<byte[]> call(Channel channel, CallOptions options) {
    return ClientCalls.futureUnaryCall(channel.newCall(method("Port"), options), new byte[0]);
  }

  /** Calls on each of the channels until killed, and prints the result of each call. A channel is NAME,TARGET,METHOD,AUTHORITY. */
  private static void loop(List<String> channels) throws InterruptedException {
    for (String words : channels) {
      String[] parts = words.split(",", -1);
      String name = parts[0];
      ManagedChannelBuilder<?> builder = Grpc.newChannelBuilder(parts[1], InsecureChannelCredentials.create());
      if (!parts[3].isEmpty()) {
        builder.overrideAuthority(parts[3]);
      }
      Channel channel = withHeader(builder.build(), "name", name);
      MethodDescriptor<byte[], byte[]> method = method(parts[2]);
      new Thread(() -> loop(channel, method, name)).start();
    }
    Thread.currentThread().join();
  }

  private static void loop(Channel channel, MethodDescriptor<byte[], byte[]> method, String name) {
    while (true) {
      CallOptions options = CallOptions.DEFAULT.withDeadlineAfter(5, TimeUnit.SECONDS);
      String reached;
      try {
        reached = new String(ClientCalls.blockingUnaryCall(channel, method, options, new byte[0]));
      } catch (StatusRuntimeException error) {
        reached = error.getStatus().getCode().value() + " " + error.getStatus().getDescription();
      }
      System.out.println(name + " " + reached.replace('\n', ' '));
      LockSupport.parkNanos(TimeUnit.MILLISECONDS.toNanos(20));
    }
  }

  private static Channel withHeader(Channel channel, String key, String value) {
    Metadata headers = new Metadata();
    headers.put(Metadata.Key.of(key, Metadata.ASCII_STRING_MARSHALLER), value);
    return ClientInterceptors.intercept(channel, MetadataUtils.newAttachHeadersInterceptor(headers));
  }

  /** Makes this number of calls, and waits for all; prints how many were answered, and the time. A call waits for its resources. */
  private static void answered(int count, IntFunction<Channel> channels) throws InterruptedException, IOException {
    long begun = System.nanoTime();
    CallOptions options = CallOptions.DEFAULT.withWaitForReady().withDeadlineAfter(60, TimeUnit.SECONDS);
    List<Future<byte[]>> calls = IntStream.range(0, count).mapToObj(number -> call(channels.apply(number), options)).toList();
    int good = 0;
    for (Future<byte[]> one : calls) {
      try {
        one.get();
        good++;
      } catch (ExecutionException error) {
        System.err.println(error.getCause().getMessage());
      }
    }
    System.out.printf(Locale.ROOT, "answered %d in %.3f%n", good, (System.nanoTime() - begun) / 1e9);
    System.in.readAllBytes();
  }

  private static void many(String target, int count) throws InterruptedException, IOException {
    List<ManagedChannel> channels = IntStream.range(0, count).mapToObj(number -> open(target + "-" + number)).toList();
    answered(count, channels::get);
  }

  private static void each(String target, int count) throws InterruptedException, IOException {
    ManagedChannel channel = open(target);
    answered(count, number -> withHeader(channel, "number", String.valueOf(number)));
  }

  public static void main(String[] arguments) throws Exception {
    String target = arguments[1];
    switch (arguments[0]) {
      case "loop" -> loop(List.of(arguments).subList(1, arguments.length));
      case "many" -> many(target, Integer.parseInt(arguments[2]));
      case "each" -> each(target, Integer.parseInt(arguments[2]));
      default -> throw new IllegalArgumentException(arguments[0]);
    }
    // Open channels have threads.
    System.exit(0);
  }
}
