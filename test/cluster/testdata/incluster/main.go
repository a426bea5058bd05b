// Command incluster is a pod that talks to the API server as pods do, with its
// service account, and to its node's containerd; then it waits.
package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"os/signal"
	"syscall"

	metav1 "k8s.io/apimachinery/pkg/apis/meta/v1"
	"k8s.io/client-go/kubernetes"
	"k8s.io/client-go/rest"
)

func main() {
	ctx, stop := signal.NotifyContext(context.Background(), syscall.SIGTERM)
	defer stop()
	if err := run(ctx); err != nil {
		fmt.Fprintln(os.Stderr, "incluster:", err)
		os.Exit(1)
	}
	<-ctx.Done()
}

func run(ctx context.Context) error {
	config, err := rest.InClusterConfig()
	if err != nil {
		return err
	}
	client, err := kubernetes.NewForConfig(config)
	if err != nil {
		return err
	}
	pods, err := client.CoreV1().Pods("incluster").List(ctx, metav1.ListOptions{})
	if err != nil {
		return err
	}
	conn, err := new(net.Dialer).DialContext(ctx, "unix", "/run/containerd/containerd.sock")
	if err != nil {
		return err
	}
	fmt.Println("pods seen:", len(pods.Items))
	return conn.Close()
}
