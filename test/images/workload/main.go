// Command workload is the program of test containers, and of the sandbox of
// every pod on the test bed:
//
//	workload                  waits for SIGTERM
//	workload burn N           keeps N threads busy
//	workload alloc SIZE       holds SIZE bytes of memory ("64Mi", "1000000"); each
//	                          line on stdin is a new size
//	workload exit CODE AFTER  ends with CODE after a duration ("0s", "1m")
//
// All but exit end with code 0 at the first SIGTERM or SIGINT.
package main

import (
	"bufio"
	"fmt"
	"os"
	"os/signal"
	"strconv"
	"strings"
	"syscall"
	"time"
)

func main() {
	ended := make(chan os.Signal, 1)
	signal.Notify(ended, syscall.SIGTERM, syscall.SIGINT)
	children := make(chan os.Signal, 1)
	signal.Notify(children, syscall.SIGCHLD)
	go reap(children)

	if err := run(os.Args[1:]); err != nil {
		fmt.Fprintln(os.Stderr, "workload:", err)
		os.Exit(2)
	}
	<-ended
}

// run starts what the arguments ask for and returns while it goes on.
func run(args []string) error {
	switch {
	case len(args) == 0:
		return nil
	case args[0] == "burn" && len(args) == 2:
		threads, err := strconv.Atoi(args[1])
		if err != nil {
			return fmt.Errorf("number of threads: %w", err)
		}
		burn(threads)
		return nil
	case args[0] == "alloc" && len(args) == 2:
		return alloc(args[1])
	case args[0] == "exit" && len(args) == 3:
		return exit(args[1], args[2])
	}
	return fmt.Errorf("what is %q? burn N, alloc SIZE, exit CODE AFTER, or nothing to wait", strings.Join(args, " "))
}

// reap collects orphans: as a sandbox this is process 1 of pods that share
// their process namespace.
func reap(children <-chan os.Signal) {
	for range children {
		for {
			pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil)
			if pid <= 0 || err != nil {
				break
			}
		}
	}
}

func burn(threads int) {
	for range threads {
		go func() {
			for i := 0; ; i++ { //nolint:revive // the point is to be busy
			}
		}()
	}
}

// alloc holds memory outside of the Go heap, so that what is given back leaves
// the cgroup at once.
func alloc(size string) error {
	held, err := hold(nil, size)
	if err != nil {
		return err
	}
	go func() {
		lines := bufio.NewScanner(os.Stdin)
		for lines.Scan() {
			next, err := hold(held, lines.Text())
			if err != nil {
				fmt.Fprintln(os.Stderr, "workload:", err)
				continue
			}
			held = next
		}
	}()
	return nil
}

// hold swaps one piece of memory for another and touches every page.
func hold(held []byte, size string) ([]byte, error) {
	n, err := parseSize(size)
	if err != nil {
		return held, err
	}
	if held != nil {
		if err := syscall.Munmap(held); err != nil {
			return held, fmt.Errorf("giving memory back: %w", err)
		}
	}
	memory, err := syscall.Mmap(-1, 0, max(n, 1), syscall.PROT_READ|syscall.PROT_WRITE, syscall.MAP_ANON|syscall.MAP_PRIVATE)
	if err != nil {
		return nil, fmt.Errorf("taking %s of memory: %w", size, err)
	}
	for i := 0; i < len(memory); i += os.Getpagesize() {
		memory[i] = 1
	}
	if _, err := fmt.Fprintln(os.Stdout, "holding", n); err != nil {
		return memory, fmt.Errorf("saying so: %w", err)
	}
	return memory, nil
}

// parseSize knows plain bytes and the suffixes Ki, Mi and Gi.
func parseSize(text string) (int, error) {
	text = strings.TrimSpace(text)
	for i, suffix := range []string{"Ki", "Mi", "Gi"} {
		if number, ok := strings.CutSuffix(text, suffix); ok {
			n, err := strconv.Atoi(number)
			return n << (10 * (i + 1)), err
		}
	}
	return strconv.Atoi(text)
}

func exit(code, after string) error {
	status, err := strconv.Atoi(code)
	if err != nil {
		return fmt.Errorf("exit code: %w", err)
	}
	wait, err := time.ParseDuration(after)
	if err != nil {
		return fmt.Errorf("time before the exit: %w", err)
	}
	time.AfterFunc(wait, func() { os.Exit(status) })
	return nil
}
