import com.standardwebhooks.Webhook;
import com.standardwebhooks.exceptions.WebhookVerificationException;
import java.nio.charset.StandardCharsets;
import java.util.Base64;
import java.util.List;
import java.util.Map;
import java.util.Scanner;

/**
 * Verifies calls with Java's standardwebhooks. A line each: secret, id, timestamp, then signatures
 * and body in base64; says good or refused.
 */
public final class Verify {
    private Verify() {}

    private static String text(String base64) {
        return new String(Base64.getDecoder().decode(base64), StandardCharsets.UTF_8);
    }

    public static void main(String[] args) {
        Scanner lines = new Scanner(System.in, StandardCharsets.UTF_8);
        while (lines.hasNextLine()) {
            String[] parts = lines.nextLine().split(" ");
            Map<String, List<String>> headers = Map.of(
                "webhook-id", List.of(parts[1]),
                "webhook-timestamp", List.of(parts[2]),
                "webhook-signature", List.of(text(parts[3])));
            try {
                new Webhook(parts[0]).verify(text(parts[4]), headers);
                System.out.println("good");
            } catch (WebhookVerificationException error) {
                System.out.println("refused " + error);
            }
        }
    }
}
