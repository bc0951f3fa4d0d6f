package thalweg.bench;

import java.util.HashMap;
import java.util.Map;

/** --name value pairs. */
public final class Args {
    private final Map<String, String> values = new HashMap<>();

    public Args(String[] argv) {
        for (int i = 0; i + 1 < argv.length; i += 2) {
            values.put(argv[i].replaceFirst("^--", ""), argv[i + 1]);
        }
    }

    public String get(String name, String otherwise) {
        return values.getOrDefault(name, otherwise);
    }

    public long number(String name, long otherwise) {
        return Long.parseLong(values.getOrDefault(name, Long.toString(otherwise)));
    }
}
